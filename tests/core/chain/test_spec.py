"""Chains as the plan describes them: plain data that travels."""

import pickle
from functools import partial

from headgate.core.chain.spec import ChainSpec, OperatorSpec, PartitionSpec, ToNetwork, ToOperator
from headgate.core.egress.router import RoundRobin
from headgate.core.operators.one_input import MapOperator


def test_a_chain_travels_to_its_task_manager() -> None:
    spec = ChainSpec(
        (
            OperatorSpec(1, "a", "u1", partial(MapOperator, abs), (ToOperator(1, tag="late"),)),
            OperatorSpec(2, "b", "u2", partial(MapOperator, abs), (ToNetwork(0),)),
        ),
        (PartitionSpec(RoundRobin, timeout_ms=5),),
        object_reuse=True,
    )
    twin = pickle.loads(pickle.dumps(spec))
    assert [operator.outputs for operator in twin.operators] == [
        operator.outputs for operator in spec.operators
    ]
    assert twin.partitions == spec.partitions
    assert twin.object_reuse
    assert isinstance(twin.operators[0].make(), MapOperator)


def test_objects_are_not_reused_unless_the_job_says_so() -> None:
    assert not ChainSpec(()).object_reuse
