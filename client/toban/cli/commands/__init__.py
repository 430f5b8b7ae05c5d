"""One module per verb or noun of `toban`. A command parses its options, makes its calls and renders the answer."""
