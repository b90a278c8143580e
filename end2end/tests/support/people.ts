/** Who signs in. */
export type Role = "viewer" | "operator" | "admin";

export const ROLES: readonly Role[] = ["viewer", "operator", "admin"];
export const PASSWORD = "a password for tests only";
export const emailOf = (role: Role): string => `${role}@example.com`;
export const nameOf = (role: Role): string => ({ viewer: "Vera Lin", operator: "Omar Diaz", admin: "Ana Costa" })[role];
