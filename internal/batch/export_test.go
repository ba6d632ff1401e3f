package batch

// ItemID is itemID.
var ItemID = itemID
