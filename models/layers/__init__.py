"""The parts that papers share: five seams (core, attention, mlp, wiring, depth), each passed as a constructor."""
