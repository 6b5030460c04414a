"""Breaches from before the rules of the whole tree, for `test_house.py`; these lists only shrink.

A set holds the keys of findings that are known. A number is how many findings there may be: files
move, so they are counted for all of src or of tests. Lower it when you have paid some.
"""

DEBTS: dict[str, set[str] | dict[str, int]] = {
    "unique_classes": set(),
    "vague_names": {"src": 393, "tests": 834},
    "used": {
        "_entries_left",
        "events_in",
        "frames_received",
        "frames_sent",
        "rewind",
        "run_urgent",
        "size_bytes",
    },
    "constructors": {
        "RemoteChannel",
        "Task",
    },
    "class_changes": {},
    "several_bases": {
        "BroadcastState",
        "CollectSink",
        "DataStream",
        "HeldBroadcast",
    },
    "small_modules": {"src": 21},
    "helpers_in_kits": {"tests": 63},
}
