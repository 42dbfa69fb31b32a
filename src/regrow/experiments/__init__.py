"""The paper's experiments as commands: grids of runs, their statistics, the paper's numbers beside ours."""
