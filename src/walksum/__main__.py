from walksum.cli import app

app(prog_name="walksum")
