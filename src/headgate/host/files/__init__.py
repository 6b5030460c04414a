"""Local files of the user alone: folders that go with their owner, private modes, no links."""
