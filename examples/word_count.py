"""Counts the words of text files: python examples/word_count.py FILE_OR_FOLDER …

Without arguments it counts those of a small text. It runs in batch mode, because the input ends:
there is one result for each word instead of a running count.
"""

import re
import sys

from headgate import RuntimeExecutionMode, StreamExecutionEnvironment
from headgate.datastream.connectors import TextFileSource

TEXT = """
A gate at the head of a channel lets the water in.
The water takes the channel; the channel takes the water to the fields.
"""


def words_of(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


def main(paths: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(2)
    if paths:
        lines = env.from_source(TextFileSource(*paths), None, "files")
    else:
        lines = env.from_collection(TEXT.splitlines())

    words = lines.rebalance().flat_map(words_of).map(lambda word: (word, 1))
    counts = words.key_by(lambda pair: pair[0]).sum(1).name("count")

    # The results come here, to the driver, while the job runs.
    with counts.execute_and_collect("word count") as results:
        for word, count in sorted(results, key=lambda pair: (-pair[1], pair[0]))[:5]:
            print(f"{count:4} {word}")


if __name__ == "__main__":
    main(sys.argv[1:])
