"""The commit: one transaction for all tasks of the instance, as a cut and not a pause. Knows tasks' epochs, not operators."""
