"""What an environment is told beside its streams, and what travels with its program."""

from collections.abc import Callable, Iterator

import pytest

from headgate.api.draft import JobFile
from headgate.api.runtime import set_default_parallelism
from headgate.base.errors import PlanInvalid, SettingsInvalid
from headgate.common import ConfigOptions, Configuration
from headgate.datastream import MemorySize, SlotSharingGroup, StreamExecutionEnvironment
from tests.api.kit import DEFAULT_PARALLELISM, OneTaskRuntime


@pytest.fixture(autouse=True)
def _default_parallelism() -> Iterator[None]:
    yield
    set_default_parallelism(None)


def test_default_parallelism_holds_for_environments_that_set_none(
    env: StreamExecutionEnvironment,
) -> None:
    assert env.get_default_local_parallelism() == DEFAULT_PARALLELISM
    StreamExecutionEnvironment.set_default_local_parallelism(2)
    assert env.get_default_local_parallelism() == env.get_parallelism() == 2
    env.from_collection([1]).map(str)
    assert [node.parallelism for node in env.get_stream_graph().nodes.values()] == [1, 2]
    assert env.set_parallelism(5).get_parallelism() == 5
    with pytest.raises(PlanInvalid, match="from 1 to"):
        env.set_default_local_parallelism(0)


def test_operators_of_different_key_groups_never_share_a_task(
    env: StreamExecutionEnvironment,
) -> None:
    assert not env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    env.set_parallelism(1)
    env.from_collection([1]).map(str).set_max_parallelism(7)
    assert len(env.get_job_graph().vertices) == 2


class ResourceProfile:
    """As Spark's looks from outside, which this room does not load."""

    id = 1
    taskResources = None  # noqa: N815 # Spark's name


def test_program_carries_the_resource_profile(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    profile = ResourceProfile()
    env.set_resource_profile(profile).from_collection([1])
    env.execute()
    assert local_runtime.programs[0].resource_profile is profile


def test_something_else_is_no_resource_profile(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(PlanInvalid, match="was given a dict; give a ResourceProfile"):
        env.set_resource_profile({"gpu": 1})


def test_program_carries_archives_files_and_requirements(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    env.add_python_archive("data/words.zip")
    env.add_python_archive("hdfs://host/model.tar.gz", "model")
    env.register_cached_file("run.sh", "tools/run", executable=True)
    env.set_python_requirements("packages.txt", "wheels")
    env.get_configuration().set_string("python.archives", "a.zip#b, c.zip")
    env.from_collection([1])
    env.execute()
    program = local_runtime.programs[0]
    assert program.job_files == (
        JobFile("data/words.zip", "words.zip", unpack=True),
        JobFile("hdfs://host/model.tar.gz", "model", unpack=True),
        JobFile("run.sh", "tools/run", executable=True),
        JobFile("a.zip", "b", unpack=True),
        JobFile("c.zip", "c.zip", unpack=True),
    )
    assert program.requirements == ("packages.txt", "wheels")


def test_requirements_may_stand_in_the_configuration(
    env: StreamExecutionEnvironment, local_runtime: OneTaskRuntime
) -> None:
    env.get_configuration().set_string("python.requirements", "packages.txt")
    env.from_collection([1])
    env.execute()
    assert local_runtime.programs[0].requirements == ("packages.txt", None)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../x", "a//b"])
def test_a_job_file_stays_within_the_working_directory(
    env: StreamExecutionEnvironment, name: str
) -> None:
    with pytest.raises(PlanInvalid, match="within the working directory"):
        env.register_cached_file("x", name)
    with pytest.raises(PlanInvalid, match="within the working directory"):
        env.add_python_archive("x.zip", name)


def test_operators_without_uid_are_refused_if_none_shall_be_made(
    env: StreamExecutionEnvironment,
) -> None:
    config = env.get_config()
    assert config.has_auto_generated_uids_enabled()
    config.disable_auto_generated_uids()
    stream = env.from_collection([1]).uid("numbers").map(str)
    with pytest.raises(PlanInvalid, match=r"'Map' has no uid.*give it one with uid\(\)"):
        stream.execute_and_collect(limit=1)
    stream.uid("texts")
    assert stream.execute_and_collect(limit=1) == ["1"]
    config.enable_auto_generated_uids()
    assert stream.map(int).execute_and_collect(limit=1) == [1]


def test_execution_config_writes_known_settings(env: StreamExecutionEnvironment) -> None:
    config = env.get_config()
    config.set_latency_tracking_interval(250).set_task_cancellation_timeout(900)
    assert config.get_latency_tracking_interval() == 250
    assert config.get_task_cancellation_timeout() == 900
    assert env.get_configuration().to_dict() == {
        "metrics.latency.interval": "250",
        "task.cancellation.timeout": "900",
    }
    assert config.set_latency_tracking_interval(-1).get_latency_tracking_interval() == 0
    with pytest.raises(PlanInvalid, match="1 or more"):
        config.set_task_cancellation_timeout(0)


def test_options_are_read_with_their_type_and_default() -> None:
    city = ConfigOptions.key("my.city").string_type().default_value("Ulm")
    level = ConfigOptions.key("my.level").int_type().no_default_value()
    loud = ConfigOptions.key("my.loud").boolean_type().default_value(False)
    share = ConfigOptions.key("my.share").double_type().default_value(0.5)
    settings = Configuration()
    assert settings.get(city) == "Ulm"
    assert settings.get(city, "Bonn") == "Bonn"
    assert settings.get(level) is None
    settings.set(city, "Köln").set(level, 3).set(loud, True).set(share, 0.25)
    found = [settings.get(option) for option in (city, level, loud, share)]
    assert found == ["Köln", 3, True, 0.25]
    assert settings.get_boolean("my.loud", False)
    settings.set_string("my.level", "high")
    with pytest.raises(SettingsInvalid, match=r"my\.level.*'high' is not a whole number"):
        settings.get(level)


def test_slot_sharing_groups_tell_their_resources() -> None:
    builder = SlotSharingGroup.builder("models").set_cpu_cores(2)
    group = (
        builder.set_task_heap_memory(MemorySize.of_mebi_bytes(64))
        .set_managed_memory_mb(8)
        .set_external_resource("gpu", 1)
        .build()
    )
    assert group.get_cpu_cores() == 2
    assert group.get_task_heap_memory() == MemorySize(64 * 1024 * 1024)
    assert group.get_task_off_heap_memory() == MemorySize(0)
    assert group.get_managed_memory() == MemorySize.of_mebi_bytes(8)
    assert group.get_external_resources() == {"gpu": 1}
    size = MemorySize.of_mebi_bytes(3 << 10)
    assert (size.get_kibi_bytes(), size.get_mebi_bytes()) == (3 << 20, 3 << 10)
    assert (size.get_gibi_bytes(), size.get_tebi_bytes()) == (3, 0)
    assert MemorySize(1) < size
    assert [str(MemorySize(number)) for number in (0, 5, 2048, 2049, 64 << 20, 1 << 50)] == [
        "0 bytes",
        "5 bytes",
        "2 kb",
        "2049 bytes",
        "64 mb",
        "1024 tb",
    ]
    with pytest.raises(PlanInvalid, match="0 or more"):
        MemorySize(-1)
    with pytest.raises(PlanInvalid, match="give a MemorySize"):
        builder.set_managed_memory(64)  # type: ignore[arg-type]


def test_slot_sharing_group_without_resources_says_nothing_of_them() -> None:
    group = SlotSharingGroup.builder("plain").build()
    assert group == SlotSharingGroup("plain")
    assert hash(group) == hash(SlotSharingGroup("plain"))
    assert group.get_cpu_cores() is group.get_task_heap_memory() is group.get_managed_memory()
    assert group.get_external_resources() == {}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b: b.set_cpu_cores(1.0), "has cpu_cores and no task_heap_memory_mb"),
        (lambda b: b.set_task_heap_memory_mb(10), "has task_heap_memory_mb and no cpu_cores"),
        (
            lambda b: b.set_managed_memory_mb(10),
            "has managed_memory_mb and no cpu_cores and no task_heap_memory_mb",
        ),
        (lambda b: b.set_external_resource("gpu", 1.0), "has gpu and no cpu_cores"),
        (lambda b: b.set_cpu_cores(0), "was given 0 as cpu_cores; give a number .* above 0"),
        (lambda b: b.set_cpu_cores(-1.5), "was given -1.5 as cpu_cores"),
        (lambda b: b.set_task_heap_memory(MemorySize(0)), "0 as task_heap_memory_mb"),
        (lambda b: b.set_task_off_heap_memory_mb(-1), "-1 as .*; give a number .* 0 or more"),
        (lambda b: b.set_external_resource("gpu", -1.0), "was given -1 as gpu"),
    ],
)
def test_slot_sharing_group_whose_resources_cannot_be_is_refused(
    build: Callable[[SlotSharingGroup.Builder], SlotSharingGroup.Builder], words: str
) -> None:
    with pytest.raises(PlanInvalid, match=f"the slot sharing group 'models' .*{words}"):
        build(SlotSharingGroup.builder("models")).build()
