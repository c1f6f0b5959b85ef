"""report --workdir W: a run on one page that needs no network, its curves as pictures, and where its time went (docs/inside.md)."""

from etils import epath

from pretrain.extras import how_to_install


def add_arguments(parser):
    parser.add_argument(
        "--workdir",
        required=True,
        nargs="+",
        action="extend",
        help="one run, or several to compare",
    )
    parser.add_argument(
        "--output", help="the folder of the page and the pictures; <workdir>/report unless given"
    )


def run(args):
    import importlib.util

    from pretrain.reporting.run_report import report
    from pretrain.workdir import goodput

    pictures = importlib.util.find_spec("matplotlib") is not None
    for path in report(args.workdir, args.output, pictures):
        print(f"wrote {path}")
    if not pictures:
        print(f"no pictures: they need matplotlib: {how_to_install('report')}")
    for workdir in args.workdir:
        if known := goodput.read(epath.Path(workdir) / goodput.NAME):
            print(f"{workdir}: {goodput.line(known['seconds'], known['starts'])}")
    return 0
