"use strict";
// Pictures: the world, what the body sees, and what the density model expects.

const CLASS_COLOURS = ["#3a3f47", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c564b", "#bbbbbb"];
const UNKNOWN = "#30353d";

function colourOf(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

// Tiles are drawn once per size and then copied.
function tilePainter(tiles) {
  const kept = new Map();
  return (context, tile, x, y, size) => {
    const key = tile * 1000 + size;
    if (!kept.has(key)) kept.set(key, drawTile(tiles[tile], size));
    context.drawImage(kept.get(key), x, y);
  };
}

function drawTile(tile, size) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  context.fillStyle = "#000";
  context.fillRect(0, 0, size, size);
  const line = Math.max(1, Math.round(size * 0.031));
  context.fillStyle = "#646464";
  context.fillRect(0, 0, line, size);
  context.fillRect(0, 0, size, line);
  for (const [kind, ...shape] of tile ? tile.shapes : []) {
    context.fillStyle = shape[shape.length - 1];
    if (kind === "r") {
      const [left, right, top, bottom] = shape.slice(0, 4).map((part) => Math.round(part * size));
      context.fillRect(left, top, right - left, bottom - top);
    } else {
      context.beginPath();
      context.arc(shape[0] * size, shape[1] * size, shape[2] * size, 0, 7);
      context.fill();
    }
  }
  return canvas;
}

function drawBody(context, x, y, size, direction, colour) {
  context.save();
  context.translate(x + size / 2, y + size / 2);
  context.rotate((direction * Math.PI) / 2);
  context.beginPath();
  context.moveTo(0.4 * size, 0);
  context.lineTo(-0.36 * size, -0.33 * size);
  context.lineTo(-0.36 * size, 0.33 * size);
  context.closePath();
  context.fillStyle = colour;
  context.strokeStyle = "#fff";
  context.lineWidth = Math.max(1.5, size / 14);
  context.lineJoin = "round";
  context.fill();
  context.stroke();
  context.restore();
}

function fitted(canvas, columns, rows) {
  const wide = Math.max(canvas.clientWidth, 80) * Math.min(window.devicePixelRatio || 1, 2);
  const size = Math.max(6, Math.floor(wide / Math.max(columns, rows)));
  if (canvas.width !== size * columns || canvas.height !== size * rows) {
    canvas.width = size * columns;
    canvas.height = size * rows;
  }
  return size;
}

// The part of the world that is non-empty at some point in the episode.
function bounds(tiles, states, [columns, rows], known) {
  let [left, top, right, bottom] = [columns, rows, -1, -1];
  for (let index = 0; index < states * columns * rows; index++) {
    const tile = known[tiles[index]];
    if (!tile || !tile.shapes.length || tile.name === "unseen") continue;
    const x = Math.floor((index % (columns * rows)) / rows), y = index % rows;
    left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  // A view of nothing but empty cells has no bounds.
  return right < 0 ? [0, 0, columns, rows] : [left, top, right - left + 1, bottom - top + 1];
}

function drawWorld(canvas, paint, episode, world, state, colour) {
  const { tiles, seen, body } = episode.arrays;
  const [left, top, columns, rows] = episode.bounds;
  const size = fitted(canvas, columns, rows), context = canvas.getContext("2d");
  const cells = world[0] * world[1], bytes = Math.ceil(cells / 8);
  for (let x = 0; x < columns; x++) {
    for (let y = 0; y < rows; y++) {
      const cell = (x + left) * world[1] + y + top;
      paint(context, tiles.data[state * cells + cell], x * size, y * size, size);
      if ((seen.data[state * bytes + (cell >> 3)] >> (7 - (cell & 7))) & 1) {
        context.fillStyle = "rgba(255, 255, 255, 0.3)";
        context.fillRect(x * size, y * size, size, size);
      }
    }
  }
  const middle = (at) => [(body.data[4 * at] - left + 0.5) * size, (body.data[4 * at + 1] - top + 0.5) * size];
  for (let at = Math.max(1, state - 24); at <= state; at++) {
    const [from, to] = [middle(at - 1), middle(at)];
    if (Math.abs(from[0] - to[0]) + Math.abs(from[1] - to[1]) > 1.5 * size) continue;
    context.strokeStyle = `rgba(255, 255, 255, ${0.75 * (1 - (state - at) / 25)})`;
    context.lineWidth = Math.max(2, size / 8);
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }
  const [x, y] = middle(state);
  drawBody(context, x - size / 2, y - size / 2, size, body.data[4 * state + 2], colour);
}

function drawTiles(canvas, paint, array, state, own, colour) {
  const [, columns, rows] = array.shape;
  const size = fitted(canvas, columns, rows), context = canvas.getContext("2d");
  array.data.subarray(state * columns * rows, (state + 1) * columns * rows).forEach((tile, cell) => {
    paint(context, tile, Math.floor(cell / rows) * size, (cell % rows) * size, size);
  });
  if (own) drawBody(context, own[0] * size, own[1] * size, size, 3, colour);
}

// The likeliest tile of each cell, fainter if less certain, with its probability in per cent.
function drawLikeliest(canvas, paint, likeliest, certainty, step, least) {
  const [, columns, rows] = likeliest.shape, cells = columns * rows;
  const size = fitted(canvas, columns, rows), context = canvas.getContext("2d");
  context.globalAlpha = 1;
  context.fillStyle = UNKNOWN;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const sure = certainty.data.subarray(step * cells, (step + 1) * cells);
  if (sure.every((each) => each <= least)) return writeOver(canvas, "nothing seen yet");
  for (let cell = 0; cell < cells; cell++) {
    const x = Math.floor(cell / rows) * size, y = (cell % rows) * size;
    context.globalAlpha = 0.15 + (0.85 * sure[cell]) / 255;
    paint(context, likeliest.data[step * cells + cell], x, y, size);
    context.globalAlpha = 1;
    if (sure[cell] >= 254) continue;
    context.font = `600 ${Math.max(9, Math.round(size * 0.38))}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = size / 9;
    context.strokeStyle = "#000";
    context.fillStyle = "#fff";
    const text = String(Math.round((100 * sure[cell]) / 255));
    context.strokeText(text, x + size / 2, y + size / 2);
    context.fillText(text, x + size / 2, y + size / 2);
  }
}

function writeOver(canvas, text) {
  const context = canvas.getContext("2d");
  context.fillStyle = "#c6ccd4";
  context.font = `${Math.round(canvas.width / 13)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, canvas.width / 2, canvas.height / 2);
}

// Bytes as a picture: grey levels, or three channels.
function drawPixels(canvas, array, state) {
  const [, rows, columns, channels = 1] = array.shape, number = rows * columns;
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows), from = state * number * channels;
  for (let pixel = 0; pixel < number; pixel++) {
    for (let part = 0; part < 3; part++) {
      image.data[4 * pixel + part] = array.data[from + pixel * channels + (channels >= 3 ? part : channels - 1)];
    }
    image.data[4 * pixel + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Classes of a world without tiles: one cell each, with its number; fainter if less certain.
function drawClasses(canvas, array, state, names, certainty) {
  const shape = array.shape.slice(1), columns = shape[shape.length - 1] || 1;
  const number = shape.reduce((a, b) => a * b, 1), rows = number / columns;
  const size = fitted(canvas, columns, rows), context = canvas.getContext("2d");
  context.fillStyle = UNKNOWN;
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (let cell = 0; cell < number; cell++) {
    const each = array.data[state * number + cell], x = (cell % columns) * size, y = Math.floor(cell / columns) * size;
    context.globalAlpha = certainty ? 0.15 + (0.85 * certainty.data[state * number + cell]) / 255 : 1;
    context.fillStyle = CLASS_COLOURS[each % CLASS_COLOURS.length];
    context.fillRect(x + 1, y + 1, size - 2, size - 2);
    context.globalAlpha = 1;
    context.fillStyle = "#fff";
    context.font = `600 ${Math.round(size * 0.3)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(names[each] || String(each), x + size / 2, y + size / 2, size);
  }
}

// Real numbers: one bar each, from 0 or, with standard deviations, over mean ± standard deviation.
function drawNumbers(canvas, array, state, range, std) {
  const number = array.shape.slice(1).reduce((a, b) => a * b, 1), wide = 420, high = 210;
  canvas.width = wide;
  canvas.height = high;
  const context = canvas.getContext("2d"), [low, top] = range;
  const at = (value) => high - 8 - ((value - low) / (top - low || 1)) * (high - 16);
  context.fillStyle = "#16191e";
  context.fillRect(0, 0, wide, high);
  for (let entry = 0; entry < number; entry++) {
    const value = array.data[state * number + entry], x = (entry / number) * wide, w = wide / number;
    const from = std ? value - std.data[state * number + entry] : 0, to = std ? value + std.data[state * number + entry] : value;
    context.fillStyle = "#56b4e9";
    context.fillRect(x + 0.15 * w, Math.min(at(from), at(to)), 0.7 * w, Math.max(2, Math.abs(at(from) - at(to))));
    context.fillStyle = "#fff";
    if (std) context.fillRect(x + 0.15 * w, at(value) - 1, 0.7 * w, 2);
  }
}
