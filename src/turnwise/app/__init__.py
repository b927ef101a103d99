"""The functions behind `import turnwise` and the command line: train, resume, evaluate, build."""
