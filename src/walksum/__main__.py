from walksum.cli import run

run()
