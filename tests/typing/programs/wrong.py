"""Programs that go wrong when they run, and that a type checker finds before.

Read by type checkers, never run; each line that ends in ``# error`` must be refused, and no other.
"""

from collections.abc import Iterator

import headgate
from headgate import (
    AggregateFunction,
    CoMapFunction,
    ConnectorContext,
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    Sink,
    SinkWriter,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)


class Upper(MapFunction[str, str]):
    def map(self, value: str) -> str:
        return value.upper()


class Table(Sink[tuple[str, int]]):
    def create_writer(self, context: ConnectorContext) -> SinkWriter[tuple[str, int]]:
        raise NotImplementedError


class Marked(KeyedProcessFunction[str, int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self.seen.update("once")  # error
        yield "x"


class WrongOut(ProcessFunction[int, str]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[int]:  # error
        yield value


class Longest(AggregateFunction[str, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return max(accumulator, len(value))

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Texts(CoMapFunction[str, str, str]):
    def map1(self, value: str) -> str:
        return value

    def map2(self, value: str) -> str:
        return value


def first_letter(word: str) -> str:
    return word[0]


def longer(word: str, other: str) -> str:
    return max(word, other, key=len)


class Longer(ReduceFunction[str]):
    def reduce(self, value1: str, value2: str) -> str:
        return longer(value1, value2)


def of_texts(stream: DataStream[str]) -> None: ...


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2])
words = numbers.map(str)
windows = TumblingEventTimeWindows.of(Time.seconds(5))

headgate.Nothing()  # error
numbers.map(first_letter)  # error
numbers.map(lambda n: n.upper())  # error
numbers.map(Upper())  # error
numbers.key_by(first_letter)  # error
numbers.filter(str.isupper)  # error
numbers.flat_map(lambda n: n)  # error
numbers.sink_to(Table())  # error
numbers.add_sink(first_letter)  # error
numbers.key_by(lambda n: n % 2).process(Marked())  # error
numbers.key_by(lambda n: n % 2).reduce(Longer())  # error
numbers.key_by(lambda n: n % 2).window(windows).reduce(longer)  # error
numbers.key_by(lambda n: n % 2).window(windows).aggregate(Longest())  # error
words.key_by(str).process(Marked())  # error
words.connect(numbers).map(Texts())  # error
words.connect(numbers).key_by(first_letter, first_letter)  # error
words.join(numbers).where(first_letter).equal_to(first_letter)  # error
words.map(Upper(), output_type=int)  # error
of_texts(numbers)  # error
tag: OutputTag[str] = OutputTag("late", Types.INT())  # error
for number in numbers.execute_and_collect():
    number.upper()  # error
