"""Attention on a device. `choice.make_attend` is the door: it chooses a kernel for each call.

| kernel | device | serves |
|---|---|---|
| `plain` | any | every call; on one CPU, in parts of the rows that run at the same time |
| `splash` | TPU | calls without bias or weight dropout, lengths in steps of 128; sparse patterns |
| `row` | TPU | what Splash refuses: weight dropout, biases, relative positions, any length |
| `chunk` | TPU | the Reformer's chunks of sorted keys |
| `cudnn` | NVIDIA GPU | calls without weight dropout |

`choice.KERNELS` has their order. A kernel is imported when it is first asked whether it can serve a
call, so a run on a CPU imports `plain` alone. docs/plans.md lists each kernel's conditions.
"""
