"""Who runs next: task locks, scheduling policies, the step of a processing thread. Knows tasks, not operators."""
