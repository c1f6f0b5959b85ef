"""Find near copies with another program: cleaning.py starts this in the peers' environment.

python cleaning_peer.py datatrove|datasketch FOLDER SCRATCH

Both have 14 groups of 8 hashes over runs of five words. datatrove runs its four steps with its
defaults, without a writer. datasketch hashes the runs of lower-case words between blanks and looks
up each document. Prints {"cpu": seconds without imports, "documents": those that stay}.
"""

import json
import pathlib
import sys
import time


def run_datatrove(folder: str, scratch: str) -> tuple[float, int]:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader

    config, start = MinhashConfig(), time.process_time()
    signatures, buckets, remove = (f"{scratch}/{name}" for name in ("signatures", "buckets", "out"))
    steps = [
        [JsonlReader(folder), MinhashDedupSignature(signatures, config=config)],
        [MinhashDedupBuckets(signatures, buckets, config=config)],
        [MinhashDedupCluster(buckets, remove, config=config)],
        [JsonlReader(folder), MinhashDedupFilter(remove)],
    ]
    for i, pipeline in enumerate(steps):
        tasks = config.num_buckets if i == 1 else 1
        executor = LocalPipelineExecutor(
            pipeline, tasks=tasks, workers=1, logging_dir=f"{scratch}/logs{i}"
        )
        stats = executor.run()
    cpu = time.process_time() - start
    return cpu, int(stats.stats[-1].stats["forwarded"].total)


def run_datasketch(folder: str, scratch: str) -> tuple[float, int]:
    from datasketch import MinHash, MinHashLSH

    start, remaining = time.process_time(), 0
    index = MinHashLSH(num_perm=112, params=(14, 8))
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            words = json.loads(line)["text"].lower().encode().split()
            runs = {b" ".join(words[i : i + 5]) for i in range(max(len(words) - 4, 1))}
            sketch = MinHash(num_perm=112)
            sketch.update_batch(runs)
            if not index.query(sketch):
                index.insert(str(remaining), sketch)
                remaining += 1
    return time.process_time() - start, remaining


if __name__ == "__main__":
    program, *places = sys.argv[1:]
    run = {"datatrove": run_datatrove, "datasketch": run_datasketch}[program]
    cpu, documents = run(*places)
    print(json.dumps({"cpu": cpu, "documents": documents}))
