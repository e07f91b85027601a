package binlog

// decimalDigitBytes is the size of a group of 0 to 9 decimal digits.
var decimalDigitBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// decimalSize is the size of a DECIMAL(prec,scale) in bytes.
func decimalSize(prec, scale uint8) int {
	whole := int(prec - scale)
	return whole/9*4 + decimalDigitBytes[whole%9] + int(scale)/9*4 + decimalDigitBytes[int(scale)%9]
}
