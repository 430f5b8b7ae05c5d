import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config({ ignores: ["src/api/schema.d.ts"] }, ...tseslint.configs.strict, {
  plugins: { "react-hooks": hooks },
  rules: {
    "react-hooks/rules-of-hooks": "error",
    "react-hooks/exhaustive-deps": "error",
    "no-console": "error",
    eqeqeq: "error",
    "no-restricted-syntax": [
      "error",
      // What a workflow, a log or an event says is text, never markup.
      { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "text never becomes markup" },
    ],
  },
});
