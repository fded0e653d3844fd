"""Capacity planning as a spreadsheet that goes on computing."""
