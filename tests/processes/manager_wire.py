"""A client of the manager over gRPC, whose messages are made from the numbers of their fields and no generated code."""

from __future__ import annotations

import re
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from node import LIMIT

PACKAGE = "kv_cache_manager.proto"
META_SERVICE = f"/{PACKAGE}.meta.MetaService/"
ADMIN_SERVICE = f"/{PACKAGE}.admin.AdminService/"

Message = Any  # of a class that is made at run time

ENUMS = {
    "ErrorCode": """
        UNSPECIFIED=0 OK=1 UNSUPPORTED=2 INTERNAL_ERROR=3 SERVICE_NOT_READY=4 INVALID_ARGUMENT=5 DUPLICATE_ENTITY=6
        REACH_MAX_ENTITY_CAPACITY=7 INSTANCE_NOT_EXIST=8 SERVER_NOT_LEADER=9 IO_ERROR=20 NOT_FOUND=1001
        SESSION_NOT_FOUND=1002 IN_USE=1006
        """,
    "QueryType": """
        QT_UNSPECIFIED=0 QT_BATCH_GET=1 QT_PREFIX_MATCH=2 QT_REVERSE_ROLL_SW_MATCH=3 QT_PREFIX_MATCH_WITH_MAMBA=4
        """,
    "StorageType": "ST_UNSPECIFIED=0 ST_3FS=1 ST_MOONCAKE=2 ST_NFS=4 ST_CENOTE=100 ST_REDIS=101",
    "TrimStrategy": "TS_UNSPECIFIED=0 TS_REMOVE_ALL_CACHE=1 TS_REMOVE_ALL_META=2 TS_TIMESTAMP=3",
}

# Fields as name=number:type; `*` before a type: repeated; a type with a capital letter is an enum or a message; `|`
# behind it: one of the alternatives of a oneof.
MESSAGES = {
    "Status": "code=1:ErrorCode message=2:string",
    "Header": "status=1:Status request_id=2:string tracer_result=3:string leader=100:string",
    "CommonResponse": "header=1:Header",
    "BoolMasks": "values=1:*bool",
    "BlockMask": "offset=1:int32| bool_masks=2:BoolMasks|",
    "LocationSpec": "name=1:string uri=2:string node_id=3:string checksum=100:fixed64",
    "LocationSpecInfo": "name=1:string size=2:int64",
    "LocationSpecGroup": "name=1:string spec_names=2:*string",
    "CacheLocation": """
        type=1:StorageType spec_size=2:int32 location_specs=3:*LocationSpec id=4:string status=5:string
        create_time=6:int64
        """,
    "CacheLocationVector": "locations=1:*CacheLocation",
    "ModelDeployment": """
        model_name=1:string dtype=2:string use_mla=3:bool tp_size=4:int32 dp_size=5:int32 lora_name=6:string
        pp_size=7:int32 extra=8:string user_data=9:string use_eagle_pop=10:bool
        """,
    "InstanceInfo": """
        quota_group_name=1:string instance_group_name=2:string instance_id=3:string block_size=4:int32
        location_spec_infos=5:*LocationSpecInfo model_deployment=6:ModelDeployment
        location_spec_groups=7:*LocationSpecGroup default_query_type=8:QueryType affinity_strategy_json=9:string
        """,
    "RegisterInstanceRequest": """
        trace_id=1:string instance_group=2:string instance_id=3:string block_size=4:int32
        location_spec_infos=5:*LocationSpecInfo model_deployment=6:ModelDeployment
        location_spec_groups=7:*LocationSpecGroup default_query_type=8:QueryType affinity_strategy_json=9:string
        """,
    "RegisterInstanceResponse": "header=1:Header storage_configs=2:string extra_info=3:string",
    "GetInstanceInfoRequest": "trace_id=1:string instance_id=2:string",
    "GetInstanceInfoResponse": "header=1:Header instance_group=2:string instance_info=3:InstanceInfo",
    "GetCacheLocationRequest": """
        trace_id=1:string instance_id=2:string query_type=3:QueryType block_keys=4:*int64 token_ids=5:*int64
        block_mask=6:BlockMask sw_size=7:int32 location_spec_names=8:*string byte_keys=100:*bytes
        """,
    "GetCacheLocationResponse": "header=1:Header locations=2:*CacheLocation",
    "GetCacheLocationLenRequest": """
        trace_id=1:string instance_id=2:string query_type=3:QueryType block_keys=4:*int64 token_ids=5:*int64
        sw_size=6:int32 byte_keys=100:*bytes
        """,
    "GetCacheLocationLenResponse": "header=1:Header cache_location_len=2:int64",
    "BackendSelector": "backend_type=1:StorageType strategy=2:int32",
    "GetCacheLocationsByBackendRequest": """
        trace_id=1:string instance_id=2:string query_type=3:QueryType block_keys=4:*int64 token_ids=5:*int64
        block_mask=6:BlockMask sw_size=7:int32 location_spec_names=8:*string backend_selectors=9:*BackendSelector
        byte_keys=100:*bytes
        """,
    "GetCacheLocationsByBackendResponse": "header=1:Header key_locations=2:*CacheLocationVector",
    "GetCacheMetaRequest": """
        trace_id=1:string instance_id=2:string block_keys=3:*int64 token_ids=4:*int64 block_mask=5:BlockMask
        detail_level=6:int32 byte_keys=100:*bytes
        """,
    "GetCacheMetaResponse": """
        header=1:Header locations=2:*CacheLocation metas=3:*string replica_locations=4:*CacheLocationVector
        """,
    "StartWriteCacheRequest": """
        trace_id=1:string instance_id=2:string block_keys=3:*int64 token_ids=4:*int64
        location_spec_group_names=5:*string write_timeout_seconds=6:int32 min_replica_count=7:int32
        is_replication=8:bool byte_keys=100:*bytes
        """,
    "StartWriteCacheResponse": """
        header=1:Header write_session_id=2:string block_mask=3:BlockMask locations=4:*CacheLocation
        """,
    "FinishWriteCacheRequest": """
        trace_id=1:string instance_id=2:string write_session_id=3:string success_blocks=4:BlockMask
        locations=5:*CacheLocation checksums=100:*fixed64
        """,
    "RemoveCacheRequest": """
        trace_id=1:string instance_id=2:string block_keys=3:*int64 token_ids=4:*int64 block_mask=5:BlockMask
        byte_keys=100:*bytes
        """,
    "TrimCacheRequest": """
        trace_id=1:string instance_id=2:string strategy=3:TrimStrategy begin_timestamp=4:int32 end_timestamp=5:int32
        """,
    "MetaNodeEndpoint": """
        node_id=1:string host=2:string meta_rpc_port=3:int32 meta_http_port=4:int32 custom_info=5:string
        """,
    "GetClusterInfoRequest": "trace_id=1:string instance_id=2:string",
    "GetClusterInfoResponse": """
        header=1:Header self_node_id=2:string leader_node_id=3:string leader_endpoint=4:MetaNodeEndpoint
        """,
    "CheckHealthRequest": "trace_id=1:string",
    "CheckHealthResponse": "header=1:Header is_leader=2:bool is_health=3:bool elector_last_loop_time_ms=4:int64",
    "ListInstanceInfoRequest": "trace_id=1:string instance_group_name=2:string",
    "ListInstanceInfoResponse": "header=1:Header instance_info=2:*InstanceInfo",
}
ANSWERS_OF_HEADERS = {"FinishWriteCache", "RemoveCache", "TrimCache"}
ADMIN_METHODS = {"CheckHealth", "ListInstanceInfo"}

FIELD = re.compile(r"(?P<name>\w+)=(?P<number>\d+):(?P<list>\*?)(?P<type>\w+)(?P<choice>\|?)")


def add_fields(message: Any, text: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    for match in FIELD.finditer(text):
        field = message.field.add(name=match["name"], number=int(match["number"]))
        field.label = kinds.LABEL_REPEATED if match["list"] else kinds.LABEL_OPTIONAL
        name = match["type"]
        if name in ENUMS or name in MESSAGES:
            field.type = kinds.TYPE_ENUM if name in ENUMS else kinds.TYPE_MESSAGE
            field.type_name = f".cenote_test.{name}"
        else:
            field.type = getattr(kinds, f"TYPE_{name.upper()}")
        if match["choice"]:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0


def message_classes() -> dict[str, Any]:
    """Classes of messages by name. Names of packages and messages are not part of the bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="manager_test.proto", package="cenote_test", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for match in re.finditer(r"(\w+)=(\d+)", values):
            enum.value.add(name=match[1], number=int(match[2]))
    for name, fields in MESSAGES.items():
        add_fields(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"cenote_test.{name}")) for name in MESSAGES
    }


class WireClient:
    """Calls over gRPC. Fields and answers are objects as those of JSON."""

    def __init__(self, meta: int, admin: int) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.meta = grpc.insecure_channel(f"127.0.0.1:{meta}", [*options, ("grpc.use_local_subchannel_pool", 1)])
        self.admin = grpc.insecure_channel(f"127.0.0.1:{admin}", [*options, ("grpc.use_local_subchannel_pool", 1)])
        self.classes = message_classes()

    def close(self) -> None:
        self.meta.close()
        self.admin.close()

    def raw(self, method: str, message: bytes) -> bytes:
        """The bytes of an answer. Errors: grpc.RpcError."""
        is_admin = method in ADMIN_METHODS
        channel, service = (self.admin, ADMIN_SERVICE) if is_admin else (self.meta, META_SERVICE)
        answer = channel.unary_unary(service + method)(message, timeout=LIMIT)
        assert isinstance(answer, bytes)
        return answer

    def call(self, method: str, **fields: Any) -> dict[str, Any]:
        request = json_format.ParseDict(fields, self.classes[f"{method}Request"]())
        return self.parse(method, self.raw(method, request.SerializeToString()))

    def parse(self, method: str, data: bytes) -> dict[str, Any]:
        """An answer with all its fields, also defaults; a field that is not known here is a fault."""
        name = "CommonResponse" if method in ANSWERS_OF_HEADERS else f"{method}Response"
        answer = self.classes[name].FromString(data)
        size = answer.ByteSize()
        answer.DiscardUnknownFields()
        assert answer.ByteSize() == size, f"an answer of {method} has fields that are not known: {answer}"
        found = json_format.MessageToDict(
            answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        assert isinstance(found, dict)
        return found
