from walksum.cli import app

app()
