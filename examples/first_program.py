"""Counts words as they come."""

from headgate import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
lines = env.from_collection(["to be or not to be", "that is the question"])
words = lines.flat_map(str.split).map(lambda word: (word, 1))
words.key_by(lambda pair: pair[0]).sum(1).print()
env.execute("word count")
