// The colour of each label, for the lists and, as shaders, for the points of the map.

const LIGHTER = [0, 0.14, -0.11, -0.07], SATURATED = [0.67, 0.85, 0.88, 0.51], SHIFT = 0.76; // of each ring of colours

export const VERTEX = `
attribute vec2 place; attribute float label; attribute float flag;
uniform vec2 centre; uniform vec2 scale; uniform float size; uniform float only; uniform float chosen; uniform float dark; uniform vec3 rings;
varying vec4 colour;
void main() {
  float number = max(label, 0.0), ring = floor(mod(number + 0.5, rings.x));
  float turn = mod(floor((number + 0.5) / rings.x) * rings.z + 0.5, rings.y) - 0.5;
  float hue = fract((turn + ring * ${SHIFT}) / rings.y);
  vec3 pure = clamp(abs(fract(hue + vec3(0.0, 2.0 / 3.0, 1.0 / 3.0)) * 6.0 - 3.0) - 1.0, 0.0, 1.0);
  float lighter = ring < 0.5 ? ${LIGHTER[0].toFixed(2)} : ring < 1.5 ? ${LIGHTER[1].toFixed(2)} : ring < 2.5 ? ${LIGHTER[2].toFixed(2)} : ${LIGHTER[3].toFixed(2)};
  float saturated = ring < 0.5 ? ${SATURATED[0].toFixed(2)} : ring < 1.5 ? ${SATURATED[1].toFixed(2)} : ring < 2.5 ? ${SATURATED[2].toFixed(2)} : ${SATURATED[3].toFixed(2)};
  float light = mix(0.42, 0.64, dark) + lighter;
  vec3 tint = light + saturated * (pure - 0.5) * (1.0 - abs(2.0 * light - 1.0));
  if (label < -0.5) tint = vec3(mix(0.35, 0.7, dark));
  bool out_ = only > -1.5 && abs(label - only) > 0.5;
  float alpha = out_ ? 0.06 : (chosen > 0.5 ? (flag > 0.5 ? 1.0 : 0.15) : 0.75);
  colour = vec4(tint * alpha, alpha);
  gl_Position = vec4((place - centre) * scale, out_ ? 0.5 : 0.0, 1.0);
  gl_PointSize = flag > 0.5 ? size * 1.5 : size;
}`;
export const FRAGMENT = `
precision mediump float; varying vec4 colour;
void main() { if (length(gl_PointCoord - 0.5) > 0.5) discard; gl_FragColor = colour; }`;

// Few labels differ in hue; more of them also in lightness and saturation, as the shader has it.
// On a ring hues are evenly spaced, and taken in strides, so that labels that follow each other are far apart.
const divisor = (a, b) => (b ? divisor(b, a % b) : a);
export function coprime(count) {
  let stride = Math.max(1, Math.round(count * 0.618));
  while (divisor(stride, count) > 1) stride++;
  return stride;
}
export function ringsOf(labels) {
  const rings = labels <= 12 ? 1 : labels <= 36 ? 2 : 4, each = Math.max(1, Math.ceil(labels / rings));
  return [rings, each, coprime(each)];
}
export function colourOf(label, dark, labels) {
  if (label < 0) return dark ? "#b3b3b3" : "#595959";
  const [rings, each, stride] = ringsOf(labels), ring = label % rings;
  const hue = (((Math.floor(label / rings) * stride) % each + ring * SHIFT) / each) % 1;
  return `hsl(${hue * 360} ${SATURATED[ring] * 100}% ${((dark ? 0.64 : 0.42) + LIGHTER[ring]) * 100}%)`;
}
