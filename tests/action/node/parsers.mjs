// GitHub's own parsers of workflows, actions and expressions as a process: a JSON request a line, a JSON answer a line.
//     node parsers.mjs FOLDER-WITH-NODE_MODULES
import { register } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The packages import JSON as bundlers do; node wants to be told that it is JSON.
const hook = `
import { readFile } from "node:fs/promises";
export async function load(url, context, next) {
  if (!url.endsWith(".json")) return next(url, context);
  const text = await readFile(new URL(url), "utf8");
  return { format: "module", shortCircuit: true, source: "export default " + text };
}`;
register("data:text/javascript," + encodeURIComponent(hook));

const modules = new URL("node_modules/@actions/", pathToFileURL(process.argv[2] + "/"));
const { Lexer, Parser, Evaluator, data } = await import(new URL("expressions/dist/index.js", modules));
const { truthy } = await import(new URL("expressions/dist/result.js", modules));
const { parseWorkflow, convertWorkflowTemplate, NoOperationTraceWriter } = await import(
  new URL("workflow-parser/dist/index.js", modules)
);
const { parseAction, convertActionTemplate } = await import(
  new URL("workflow-parser/dist/actions/index.js", modules)
);

// A text with expressions in it is {expr: …}, in the form that the evaluator takes; all else is itself.
function plain(token) {
  switch (token?.templateTokenType) {
    case 1:
      return Array.from({ length: token.count }, (_, index) => plain(token.get(index)));
    case 2:
      return Object.fromEntries(
        Array.from({ length: token.count }, (_, index) => token.get(index)).map((pair) => [
          String(pair.key.value ?? pair.key),
          plain(pair.value),
        ]),
      );
    case 3:
      return { expr: token.expression };
    case 7:
      return null;
    default:
      return token?.value;
  }
}

// Conditions as the runner has them: without a status function, `success() && (…)`.
const condition = (part) => (part?.if ? { expr: part.if.expression } : undefined);

function steps(tree, converted) {
  tree.steps?.forEach((step, index) => (step.if = condition(converted.steps[index])));
}

async function parsed({ kind, name, content }) {
  const file = { name, content };
  const trace = new NoOperationTraceWriter();
  const { context, value } = kind === "action" ? parseAction(file, trace) : parseWorkflow(file, trace);
  const convert = kind === "action" ? convertActionTemplate : convertWorkflowTemplate;
  const converted = value && (await convert(context, value));
  const errors = context.errors.getErrors().map((error) => error.message);
  if (errors.length > 0) return { errors };
  const tree = plain(value);
  if (kind === "action") {
    steps(tree.runs, converted.runs);
  } else {
    for (const job of converted.jobs) {
      const own = tree.jobs[job.id.value];
      own.if = condition(job);
      steps(own, job);
    }
  }
  return { errors, tree };
}

function evaluated({ expression, contexts, failed, cancelled }) {
  const states = { success: !failed && !cancelled, failure: failed, always: true, cancelled };
  const functions = Object.entries(states).map(([name, state]) => ({
    name,
    minArgs: 0,
    maxArgs: 0,
    call: () => new data.BooleanData(state),
  }));
  const known = JSON.parse(JSON.stringify(contexts), data.reviver);
  const tree = new Parser(new Lexer(expression).lex().tokens, Object.keys(contexts), functions).parse();
  const value = new Evaluator(tree, known, new Map(functions.map((one) => [one.name, one]))).evaluate();
  return { text: value.coerceString(), truth: truthy(value) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = request.expression === undefined ? await parsed(request) : evaluated(request);
  } catch (error) {
    answer = { errors: [String(error)] };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
