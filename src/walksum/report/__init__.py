"""Pictures and tables of runs; reads results, never trains."""
