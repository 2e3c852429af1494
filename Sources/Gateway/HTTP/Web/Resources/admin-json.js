// Carillon · admin-json.js
// SPDX-License-Identifier: Apache-2.0

// Lays out the JSON of a job's fields for people. Only white space changes: parsing and writing it
// again would round large numbers and drop repeated keys.

/** The fields of a job that hold JSON. */
const jsonFields = new Set(["args", "channels", "data", "except", "platform", "users", "vars"]);

const tokens = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** Returns why a field's text is not the JSON that it should be; null if it may be sent. */
export function jsonFault(name, text) {
  if (!jsonFields.has(name)) return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `is not JSON: ${error.message}`;
  }
}

/** The digits and the power of ten of a JSON number; texts of the same value have the same. */
function decimal(number) {
  const [mantissa, power = "0"] = number.toLowerCase().split("e");
  const [whole, fraction = ""] = mantissa.split(".");
  const digits = `${whole}${fraction}`.replace(/^-?0*/, "");
  const short = digits.replace(/0+$/, "");
  return short && `${short}e${Number(power) - fraction.length + digits.length - short.length}`;
}

/** Returns what parsing a JSON text would lose; null if nothing. */
export function jsonLoss(text) {
  const found = text.match(tokens) ?? [];
  const number = found.find((token) => /^[-\d]/.test(token) && decimal(token) !== decimal(String(Number(token))));
  if (number) return `${number} does not fit a JavaScript number. Write it as text, in quotes.`;
  const kept = JSON.stringify(JSON.parse(text)).match(tokens);
  return kept.length < found.length ? "A name appears twice in an object." : null;
}

/** Returns the text of a field, with line breaks and indents if it is JSON. */
export function pretty(name, text) {
  if (!jsonFields.has(name) || jsonFault(name, text)) return text;
  const found = text.match(tokens) ?? [];
  let depth = 0;
  let line = "";
  found.forEach((token, index) => {
    const isClosing = token === "}" || token === "]";
    const isEmpty = isClosing && /[{[]/.test(found[index - 1]) && found[index - 1].length === 1;
    if (isClosing) depth -= 1;
    if (isClosing && !isEmpty) line += `\n${"  ".repeat(depth)}`;
    line += token;
    const isOpening = token === "{" || token === "[";
    if (isOpening) depth += 1;
    const opensEmpty = isOpening && (found[index + 1] === "}" || found[index + 1] === "]");
    if ((isOpening && !opensEmpty) || token === ",") line += `\n${"  ".repeat(depth)}`;
    else if (token === ":") line += " ";
  });
  return line;
}

/** Returns the text of a field, without white space between its parts if it is JSON. */
export function compact(name, text) {
  return !jsonFields.has(name) || jsonFault(name, text) ? text : (text.match(tokens) ?? []).join("");
}
