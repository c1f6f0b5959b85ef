"""report --workdir W: the curves of a run as pictures, and a page that shows them."""


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, nargs="+", help="one run, or several to compare")
    parser.add_argument("--output", help="where the pictures go; <workdir>/report unless given")


def run(args):
    from pretrain.report import report

    for path in report(args.workdir, args.output):
        print(f"wrote {path}")
    return 0
