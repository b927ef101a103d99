"""What `import turnwise` and the command line call: train, resume, evaluate and build a run."""
