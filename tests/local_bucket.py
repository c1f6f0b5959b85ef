"""A bucket that is a folder of this machine."""

from etils.epath import backend


class Bucket(backend._OsPathBackend):
    """Map gs://bucket to a folder; other buckets do not exist."""

    def __init__(self, root):
        def redirect_path(function):
            return lambda path, *args, **kwargs: function(
                str(path).replace("gs://bucket", str(root)), *args, **kwargs
            )

        for name in ("open", "exists", "isdir", "listdir", "makedirs", "stat"):
            setattr(self, name, redirect_path(getattr(super(), name)))
        list_paths = redirect_path(super().glob)
        self.glob = lambda path: [
            name.replace(str(root), "gs://bucket") for name in list_paths(path)
        ]
