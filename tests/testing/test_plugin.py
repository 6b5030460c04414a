"""The plugin for pytest, in runs of pytest of its own."""

import pytest

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "headgate.testing.plugin", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


TEST = """
    from headgate import KeyedProcessFunction

    class Doubled(KeyedProcessFunction):
        closed = []

        def process_element(self, value, ctx):
            yield value * 2

        def close(self):
            Doubled.closed.append(True)

    class Forgetful(KeyedProcessFunction):
        def open(self, context):
            self.count = 0

        def process_element(self, value, ctx):
            self.count += 1
            yield self.count

    def test_harness(headgate_harness):
        harness = headgate_harness(Doubled(), key_selector=lambda value: value)
        harness.send(2)
        assert harness.output == [4]
        again = headgate_harness.restore(
            harness.snapshot(), Doubled(), key_selector=lambda value: value
        )
        again.send(3)
        assert again.output == [6]

    def test_run_local(headgate_run_local):
        assert headgate_run_local(lambda env: env.from_collection([1])).output == [1]

    def test_simulate(headgate_simulate):
        result = headgate_simulate(lambda env: env.from_collection([1]), hash_seeds=0)
        assert result.seeds == 4

    def test_a_mistake(headgate_simulate):
        headgate_simulate(
            lambda env: env.from_collection(range(30)).key_by(lambda n: n % 3).process(Forgetful()),
            hash_seeds=0,
        )
"""


def test_its_fixtures_and_options_work(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess(*PLUGIN, "--headgate-seeds", "4", "-k", "not mistake")
    result.assert_outcomes(passed=3)
    result = pytester.runpytest_subprocess(*PLUGIN, "-k", "mistake")
    result.assert_outcomes(failed=1)
    line = next(line for line in result.outlines if "repeat it" in line)
    seed = line.split("seed=")[1].split(")")[0]
    result = pytester.runpytest_subprocess(*PLUGIN, "--headgate-seed", seed, "-k", "mistake")
    result.stdout.fnmatch_lines([f"*seed {seed}: *differs from the calm run*"])


FAILING = """
    import pytest
    from headgate import MapFunction
    from headgate.base.errors import JobFailed
    from headgate.testing import FunctionHarness, run_local, simulate

    class Picky(MapFunction):
        def map(self, value):
            if value == 2:
                raise ValueError("two is too much")
            return value

    def build(env):
        return env.from_collection([1, 2]).map(Picky())

    def test_run_local():
        run_local(build)

    def test_harness():
        with FunctionHarness(Picky()) as harness:
            harness.send(2)

    def test_simulate():
        simulate(build, hash_seeds=0)

    def test_a_seed():
        class Forgetful(MapFunction):
            def open(self, context):
                self.count = 0

            def map(self, value):
                self.count += 1
                return self.count

        simulate(lambda env: env.from_collection(range(30)).map(Forgetful()), hash_seeds=0)

    def test_misuse():
        run_local(lambda env: 5)

    def test_build_fails():
        run_local(lambda env: env.from_collection([1]).map(Picky()).no_such_method())

    def test_state():
        with FunctionHarness(Picky()) as harness:
            harness.state("none", 1)
"""


def test_it_shows_frames_of_the_test_and_of_the_program_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(failed=7)
    shown = [line for line in result.outlines if "headgate/" in line or "headgate\\" in line]
    assert shown == []
    result.stdout.fnmatch_lines_random(
        [
            ">   *run_local(build)",
            ">   *harness.send(2)",
            '>   *raise ValueError("two is too much")',
            "E   *JobFailed: job * failed in operator 'Map': ValueError: two is too much",
            "E   *SimulationFailed: the calm run fails: *two is too much",
            "E   *HarnessMisused: build() returned a int; *",
            "E   *AttributeError: *no_such_method*",
        ]
    )
    result.stdout.no_fnmatch_line("*UserFunctionFailed: *")
    own = [line for line in result.outlines if line.endswith(" ValueError: two is too much")]
    own = [line for line in own if line.startswith("E   ") and "Failed" not in line]
    assert len(own) == 3, "once in each of the first three tests"
    full = pytester.runpytest_subprocess(*PLUGIN, "--full-trace", "-k", "misuse")
    full.stdout.fnmatch_lines(["*local_run.py:*"])


def test_it_loads_nothing_of_headgate_that_is_slow(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_modules():\n"
        "    assert 'headgate.testing.plugin' in sys.modules\n"
        "    assert 'headgate.core' not in sys.modules and 'greenlet' not in sys.modules\n"
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
