"""draft"""

from data.config import Data
from data.objectives.seq2seq import Seq2Seq
from models.config import TransformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=TransformerConfig(vocab=6000, width=192, depth=3, decoder_depth=3, heads=4, mlp=512, dropout=0.1),
        data=Data(store="runs/multi30k", objective=Seq2Seq(length=96, target_length=96), batch_size=24),
        optimizer=AdamW(learning_rate=3e-3, warmup=400, decay="inverse_square_root", weight_decay=0.0, beta2=0.98, epsilon=1e-9, clip=0.0),
        train=Train(steps=2_400, compute="float32", smoothing=0.1),
        evaluate=Evaluate(every=400),
        checkpoint=Checkpoint(every=100, keep=10),
    )
