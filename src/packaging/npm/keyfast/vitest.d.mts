declare module "vitest" {
  interface ProvidedContext {
    redisUrl: string;
  }
}

export default function setup(project: {
  provide(key: "redisUrl", value: string): void;
}): Promise<() => Promise<void>>;
