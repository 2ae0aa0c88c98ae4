// Unpacks the chart's code once per page, however many charts there are and in whichever order they arrive.
const bundles = (globalThis.labkitBundles ??= new Map());

async function unpack(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).text()], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

export default {
  async render(context) {
    const name = context.model.get("bundle_name");
    if (!bundles.has(name)) bundles.set(name, unpack(context.model.get("bundle")));
    return (await bundles.get(name)).render(context);
  },
};
