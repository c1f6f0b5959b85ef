"""report --workdir W: the curves of a run as pictures, and where its time went."""

from etils import epath


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, nargs="+", help="one run, or several to compare")
    parser.add_argument("--output", help="where the pictures go; <workdir>/report unless given")


def run(args):
    from pretrain import goodput
    from pretrain.report import report

    for path in report(args.workdir, args.output):
        print(f"wrote {path}")
    for workdir in args.workdir:
        if known := goodput.read(epath.Path(workdir) / goodput.NAME):
            print(f"{workdir}: {goodput.line(known['seconds'], known['starts'])}")
    return 0
