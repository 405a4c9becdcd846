"""Every metric a run can hold, a module for each kind of what they are computed from."""
