### 各页面共用的词。

skip-to-content = 跳到正文
sidebar = 侧栏
nav-main = 主导航
nav-main-small = 主导航（小屏幕）
nav-jobs = 任务
nav-demo = 导出文档
nav-demo-short = 导出
account-of = { $name } 的账户
sign-in = 登录
sign-out = 退出登录
theme-system = 主题：跟随系统
theme-light = 主题：浅色
theme-dark = 主题：深色
try-again = 重试

role-viewer = 查看者
role-operator = 操作员
role-admin = 管理员
admins-only = 仅限管理员。
not-for-viewers = 仅限操作员和管理员。

## 状态

state-pending = 等待中
state-running = 运行中
state-retrying = 等待重试
state-succeeded = 已成功
state-failed = 已失败
state-canceled = 已取消
state-pending-meaning = 尚未开始，可能未到时间或等待空位。
state-running-meaning = 某个 worker 正在处理并发送心跳。
state-retrying-meaning = 上次尝试未成功，已安排下一次。
state-succeeded-meaning = 已完成。
state-failed-meaning = 以失败结束，不会自动再试。
state-canceled-meaning = 在完成前被人或规则停止。

## 没有 worker 登记过的阶段

stage-waiting = 排队中
stage-preparing = 正在准备
stage-generating = 正在生成
stage-rendering = 正在排版
stage-uploading = 正在上传
stage-downloadable = 可下载
stage-expired = 文件已过期

## 失败类别与错误码

class-retryable = 可重试
class-rate-limited = 被限流
class-stalled = 已停滞
class-unrecoverable = 不可恢复
class-retryable-meaning = 不做修改，稍后可能成功。
class-rate-limited-meaning = 服务方要求等待，不计入次数。
class-stalled-meaning = worker 失去响应，任务已收回，迟到的结果会被拒绝。
class-unrecoverable-meaning = 再试也会失败，剩余次数不再使用。

code-timeout = 超时
code-connection = 连接中断
code-http-5xx = 服务端错误
code-panic = 处理程序崩溃
code-io = 读写失败
code-database = 数据库错误
code-slow-down = 被要求等待
code-mail-deferred = 邮件服务器暂缓接收
code-lease-lost = 租约丢失
code-stalled-out = 停滞次数过多
code-invalid-payload = 参数错误
code-invalid-content = 内容无法处理
code-invalid-recipient = 邮箱地址无效
code-not-found = 资源不存在
code-permission = 无权限
code-quota = 额度不足
code-invalid-credentials = 凭据无效
code-mail-refused = 邮件被拒收
code-http-4xx = 请求被服务拒绝
code-http-unexpected = 响应异常

outcome-failed = 失败
outcome-rate-limited = 被限流
outcome-snoozed = 已推迟
outcome-stalled = 已停滞
outcome-released = 已交还
outcome-canceled = 已取消

## 操作及其结果

action-retry = 立即重试
action-cancel = 取消任务
action-retry-job = 重试了任务
action-rerun-job = 重新生成了文件
action-cancel-job = 取消了任务
action-enqueue-job = 创建了任务
action-read-job = 打开了任务
action-follow-job = 打开了任务

notice-retried = 任务已重新排队。
notice-canceled = 任务已取消。
notice-cancel-requested = 已要求任务停止。运行中的任务约 2 秒内停止。
notice-is-state = 未做任何更改，因为任务现在处于另一状态：{ $state }。
notice-key-held = 未做任何更改：另一个任务占用了相同的幂等键。
notice-open-other = 打开 { $id }
notice-gone = 未做任何更改：该任务已不存在。
notice-forbidden = 未做任何更改：您的角色无权执行此操作。此次尝试已写入审计日志。
notice-failed = 未做任何更改：服务器未能完成操作，请重试。

## 实时更新

live-on = 实时
live-paused = 已暂停
live-off = 未实时更新
live-pause = 暂停实时更新
live-resume = 恢复实时更新
live-signed-out = 您已退出登录，本页不再跟随变化。
live-sign-in = 重新登录
live-silent = 未实时更新。上次更新时间 { $time }，正在自动重试。
live-try-now = 立即重试

## 错误

error-signed-out = 您已退出登录
error-signed-out-text = 请登录后继续，筛选和页码均已保留。
error-forbidden = 您无权查看此内容
error-forbidden-text = 可联系管理员调整您的角色。
error-not-found = 未找到
error-not-found-text = 此地址没有内容。
error-too-slow = 搜索耗时过长
error-too-slow-text = 为保护队列，已在 2 秒后停止。请选择类型或状态，或换个搜索词。
error-unreachable = 无法连接服务器
error-unreachable-text = 任务仍在运行，请稍后重试。
error-no-database = 数据库没有响应
error-no-database-text = 数据不会丢失：任务保存在数据库中，恢复后会继续运行。请稍后重试。
error-bad-request = 服务器无法识别此请求
error-bad-request-text = 请重新加载页面。若刚启动了新版本，重新加载即可。
error-internal = 加载失败
error-internal-text = 任务仍在运行。编号 { $reference }

not-found-title = 页面不存在
not-found-heading = 没有这个页面
not-found-text = 地址可能有误，或页面已被移除。
not-found-link = 前往任务列表

## 时间与大小

time-now = 刚刚
time-seconds-ago = { $n } 秒前
time-minutes-ago = { $n } 分钟前
time-hours-ago = { $n } 小时前
time-days-ago = { $n } 天前
time-in-seconds = { $n } 秒后
time-in-minutes = { $n } 分钟后
time-in-hours = { $n } 小时后
time-in-days = { $n } 天后
duration-seconds = { $s } 秒
duration-minutes = { $m } 分钟
duration-minutes-seconds = { $m } 分 { $s } 秒
duration-hours = { $h } 小时
duration-hours-minutes = { $h } 小时 { $m } 分
duration-days = { $d } 天
percent = { $n }%

json-cut = 仅显示开头部分，全文为 { $size }。
json-whole = 下载全文
json-hidden = 已隐藏
