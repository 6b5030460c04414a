"""From the program to tasks in slots: stream graph, job graph, execution graph, placement."""
