// The API's shapes, by the names this app uses. They are generated from the server's OpenAPI document (npm run api).

import type { components } from "./api";

type Schemas = components["schemas"];

export type Summary = Schemas["Summary"];
export type Session = Schemas["Session"];
export type Message = Schemas["Message"];
export type Body = Schemas["Body"];
export type Messages = Schemas["Messages"];
export type MessageList = Schemas["MessageList"];
export type StreamMessage = Schemas["StreamMessage"];
export type GRPC = Schemas["GRPC"];
export type Timing = Schemas["Timing"];
export type TLS = Schemas["TLS"];
export type HTTP2 = Schemas["HTTP2"];
export type GoAway = Schemas["GoAway"];
export type Certificate = Schemas["Certificate"];
export type CertificateList = Schemas["CertificateList"];
export type Setting = Schemas["Setting"];
export type Status = Schemas["Status"];
export type Authority = Schemas["Authority"];
export type OutboundSettings = Schemas["Settings"];
export type OutboundChange = Schemas["SettingsChange"];
export type StoreStatus = Schemas["Store"];
export type Annotation = Schemas["Annotation"];
export type Deletion = Schemas["Deletion"];
export type Retention = Schemas["Retention"];
export type Share = Schemas["Share"];
export type NewShare = Schemas["NewShare"];
export type ShareList = Schemas["ShareList"];
export type Grant = Schemas["Grant"];
export type LiveView = Schemas["LiveView"];
export type LiveWindow = Schemas["LiveWindow"];
export type LiveInvalid = Schemas["LiveInvalid"];
export type LiveSession = Schemas["LiveSession"];
export type LiveStatus = Schemas["LiveStatus"];

export type Side = "request" | "response";
