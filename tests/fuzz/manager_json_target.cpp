// Bodies of the manager's calls as JSON.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/fuzz/target.hpp"
#include "tests/support/manager_texts.hpp"
#include "transport/manager/message_json.hpp"
#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/proto/debug.pb.h"
#include "transport/manager/proto/meta.pb.h"
#include "transport/manager/rpc_table.hpp"

namespace {

using namespace cenote::manager;
using cenote::fuzz::bytes_view;
using google::protobuf::Message;

namespace proto = kv_cache_manager::proto;

constexpr std::size_t most_calls = rpc_rows.size();

/// An empty request of a call.
const Message& request_of(const rpc_row& row) {
  // Else the linker may leave the files of messages out, and the pool does not have them.
  static_cast<void>(proto::meta::CommonResponse::descriptor());
  static_cast<void>(proto::admin::CommonResponse::descriptor());
  static_cast<void>(proto::debug::CommonResponse::descriptor());
  std::string name(row.grpc_path.substr(1));
  name[name.find('/')] = '.';
  const auto* const method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  if (method == nullptr) std::abort();
  return *google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->input_type());
}

std::string text_of(const Message& message) {
  std::string text;
  write_json(message, text);
  return text;
}

bool is_same(const Message& first, const Message& second) {
  google::protobuf::util::MessageDifferencer differences;
  google::protobuf::util::DefaultFieldComparator fields;
  fields.set_treat_nan_as_equal(true);
  differences.set_field_comparator(&fields);
  return differences.Compare(first, second);
}

/// Protocol Buffers' own reader understands the text alike.
bool is_read_alike(const std::string& text, const Message& message) {
  const std::unique_ptr<Message> second(message.New());
  return google::protobuf::util::JsonStringToMessage(text, second.get()).ok() && is_same(*second, message);
}

/// A body that is taken is printed as a text that means the same to every reader.
template <std::size_t Call>
void read_body(bytes_view input) {
  const std::unique_ptr<Message> message(request_of(rpc_rows[Call]).New());
  const std::string_view body(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto read = read_json(body, *message); !read) {
    if (message->ByteSizeLong() != 0 || !read.error().cause.message.starts_with("body: ")) std::abort();
    return;
  }
  const std::string text = text_of(*message);
  const std::unique_ptr<Message> second(message->New());
  if (!read_json(text, *second) || !is_same(*second, *message) || !is_read_alike(text, *message)) std::abort();
}

template <std::size_t... Calls>
constexpr std::array<cenote::fuzz::codec, most_calls> readers_of(std::index_sequence<Calls...>) {
  return {read_body<Calls>...};
}
constexpr auto codecs = readers_of(std::make_index_sequence<most_calls>());

void write_text_seed(rpc call, std::string_view text) {
  cenote::fuzz::write_seed(static_cast<std::size_t>(call), std::as_bytes(std::span(text)));
}

/// A message with something in each field, to a depth.
void fill(Message& message, int depth) {
  const auto* const fields = message.GetDescriptor();
  const auto* const access = message.GetReflection();
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* const field = fields->field(i);
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE || field->is_map() || depth == 0)
      continue;
    fill(field->is_repeated() ? *access->AddMessage(&message, field) : *access->MutableMessage(&message, field),
         depth - 1);
  }
}

void write_seeds() {
  for (const rpc_row& row : rpc_rows) {
    const std::unique_ptr<Message> message(request_of(row).New());
    fill(*message, 4);
    write_text_seed(row.call, text_of(*message));
  }
  for (const auto text : cenote::test::good_locate_texts) write_text_seed(rpc::get_cache_location, text);
  for (const auto text : cenote::test::malformed_locate_texts) write_text_seed(rpc::get_cache_location, text);
  for (const auto text : cenote::test::objectless_texts) write_text_seed(rpc::get_cache_location, text);
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
