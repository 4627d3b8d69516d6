// Several runs.
class Comparison { constructor(data) { this.data = data; } build() {} }
pamc.Comparison = Comparison;
