// Runs the emulator of GitHub until stdin ends: `node emulate.mjs FOLDER`, with the seed and the address that its answers
// name as one line of JSON on stdin. Prints a line of JSON: the port, and the private keys of Apps by their ids.
import { once } from "node:events";
import { Server } from "node:net";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The emulator asks for a port of its choice on all interfaces, and keeps the server to itself.
const listen = Server.prototype.listen;
const started = new Promise((resolve) => {
  Server.prototype.listen = function () {
    resolve(this);
    return listen.call(this, { host: "127.0.0.1", port: 0 });
  };
});

const lines = createInterface({ input: process.stdin });
const [line] = await once(lines, "line");
const { seed, url } = JSON.parse(line);
const { createEmulator } = await import(pathToFileURL(`${process.argv[2]}/node_modules/emulate/dist/api.js`));
const emulator = await createEmulator({ service: "github", port: 4000, seed, baseUrl: url });
const server = await started;
if (!server.listening) await once(server, "listening");
const keys = Object.fromEntries(emulator.generatedSecrets.map((one) => [one.id, one.value]));
process.stdout.write(JSON.stringify({ port: server.address().port, keys }) + "\n");
await once(lines, "close");
process.exit(0);
