// Loads files with Netron's own loader; prints one line of JSON for each.
// Usage: node load.mjs FILE..., in a directory with Netron's modules.
import * as fs from 'fs';
import * as path from 'path';
import * as base from './base.js';
import * as view from './view.js';

globalThis.window = {};
const read = async (file, encoding) => {
    const bytes = fs.readFileSync(path.join(import.meta.dirname, file));
    return encoding ? bytes.toString(encoding) : new base.BinaryStream(bytes);
};
const host = {
    window: {}, document: {}, environment: () => null, event: () => {},
    require: (id) => import(`${id}.js`), asset: (file) => read(file, 'utf-8'), request: read,
    exception: (error) => { throw error; },
};
const service = new view.ModelFactoryService(host);
const listed = (values) => (values || []).map((value) => [value.name, String(value.type)]);
for (const file of process.argv.slice(2)) {
    const name = path.basename(file);
    const stream = new base.BinaryStream(new Uint8Array(fs.readFileSync(file)));
    const context = { identifier: name, name, stream, entries: new Map(), ...host };
    let line;
    try {
        const model = await service.open(context);
        const graph = (model.modules || model.graphs)[0];
        line = {
            format: model.format,
            inputs: graph.inputs.map((input) => listed(input.value)),
            outputs: graph.outputs.map((output) => listed(output.value)),
            nodes: graph.nodes.map((node) => ({
                type: node.type.name,
                inputs: node.inputs.map((input) => [input.name, input.value.map((value) => value.name)]),
            })),
        };
    } catch (error) {
        line = { error: error.message };
    }
    console.log(JSON.stringify(line));
}
