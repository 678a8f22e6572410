from hypothesis import settings

# Examples are not timed: on a busy machine a first call to torch alone can take longer than the default deadline.
settings.register_profile("untimed", deadline=None, database=None)
settings.load_profile("untimed")
