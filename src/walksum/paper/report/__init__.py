"""The tables of the paper from records, as Markdown, HTML or text; reads results, never trains."""
