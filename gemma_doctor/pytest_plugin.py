"""For people who guard their own decoder with pytest."""
