"""The RQ side of amnesiad: jobs that run decay, expiry, unplug, scrub and purge passes."""
