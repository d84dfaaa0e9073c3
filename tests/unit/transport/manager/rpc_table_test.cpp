// The table of calls beside the services of the protos.
#include "transport/manager/rpc_table.hpp"

#include <boost/test/unit_test.hpp>
#include <cctype>
#include <set>
#include <string>

#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/proto/debug.pb.h"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace proto = ::kv_cache_manager::proto;

void check_service(const google::protobuf::FileDescriptor& file, rpc_service service, std::size_t& count) {
  BOOST_REQUIRE(file.service_count() == 1);
  const auto& methods = *file.service(0);
  for (int i = 0; i < methods.method_count(); ++i, ++count) {
    const std::string name = methods.method(i)->name();
    const rpc_row* row = find_grpc_path("/" + methods.full_name() + "/" + name);
    BOOST_TEST_REQUIRE(row != nullptr, name);
    BOOST_TEST(row->name == name);
    BOOST_TEST(static_cast<int>(row->service) == static_cast<int>(service));
    std::string camel = name;
    camel[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(camel[0])));
    BOOST_TEST(row->json_path == "/api/" + camel);
    BOOST_TEST(find_json_path(row->face(), row->json_path) == row);
    BOOST_TEST(&row_of(row->call) == row);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rpc_tables)

BOOST_AUTO_TEST_CASE(every_call_of_the_services_has_its_row_and_no_row_is_without_a_call) {
  std::size_t count = 0;
  check_service(*proto::meta::CommonResponse::descriptor()->file(), rpc_service::meta, count);
  check_service(*proto::admin::CommonResponse::descriptor()->file(), rpc_service::admin, count);
  check_service(*proto::debug::CommonResponse::descriptor()->file(), rpc_service::debug, count);
  BOOST_TEST(count == rpc_rows.size());
}

BOOST_AUTO_TEST_CASE(a_path_that_both_ports_have_means_the_call_of_its_port) {
  BOOST_TEST((find_json_path(rpc_face::meta, "/api/registerInstance")->call == rpc::register_instance));
  BOOST_TEST((find_json_path(rpc_face::admin, "/api/registerInstance")->call == rpc::admin_register_instance));
  BOOST_TEST((find_json_path(rpc_face::admin, "/api/injectFault")->call == rpc::inject_fault));
}

BOOST_AUTO_TEST_CASE(a_path_of_another_port_or_of_none_is_not_found) {
  BOOST_TEST(find_json_path(rpc_face::meta, "/api/addStorage") == nullptr);
  BOOST_TEST(find_json_path(rpc_face::admin, "/api/startWriteCache") == nullptr);
  for (const char* path :
       {"", "/", "/api/", "/api/getCacheLocatio", "/api/getCacheLocation/", "/api/GetCacheLocation"}) {
    BOOST_TEST(find_json_path(rpc_face::meta, path) == nullptr, path);
    BOOST_TEST(find_grpc_path(path) == nullptr, path);
  }
  BOOST_TEST(find_grpc_path("/kv_cache_manager.proto.meta.MetaService/AddStorage") == nullptr);
}

BOOST_AUTO_TEST_CASE(two_calls_are_open_and_all_of_the_admin_port_are_for_admins) {
  for (const rpc_row& row : rpc_rows) {
    const bool is_open = row.name == "GetClusterInfo" || row.name == "CheckHealth";
    const rpc_role role = is_open ? rpc_role::open : row.face() == rpc_face::meta ? rpc_role::user : rpc_role::admin;
    BOOST_TEST((row.role == role), row.name);
  }
}

BOOST_AUTO_TEST_CASE(calls_that_grant_or_overwrite_are_never_repeated) {
  for (const rpc call : {rpc::start_write_cache, rpc::trim_cache, rpc::update_storage, rpc::update_instance_group,
                         rpc::delete_account, rpc::leader_demote, rpc::load_config_snapshot}) {
    BOOST_TEST((row_of(call).kind == rpc_kind::single_write), row_of(call).name);
  }
  BOOST_TEST((row_of(rpc::finish_write_cache).kind == rpc_kind::repeatable_write));
  for (const rpc_row& row : rpc_rows) {
    const bool asks = row.name.starts_with("Get") || row.name.starts_with("List") || row.name.starts_with("Check") ||
                      row.name.starts_with("Gen");
    BOOST_TEST((row.kind == rpc_kind::read) == asks, row.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
