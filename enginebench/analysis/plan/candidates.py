def replicas_of(frame, settings):
    return ()
