"""Search for the parameters of small policies: tasks, policies, evaluation, history, methods.

Nothing here has weights to train. The loop is `turnwise.trainers.prompt_search`, the command is
`turnwise search`, and docs/search.md describes both.
"""
