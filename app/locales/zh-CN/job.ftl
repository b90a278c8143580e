### 任务页面。

job-title = { $type } { $id }，{ $state }
job-loading = 正在加载任务
job-not-found = 没有这个任务
job-not-found-text = 地址可能有误，或任务已被移除。
job-gone = 该任务已被移除，以下是最后已知的内容。
job-crumbs = 路径导航
job-stage = 阶段：{ $stage }
job-attempt = 第 { $n } 次尝试，共 { $of } 次
job-never-started = 尚未开始
job-path = 经过的状态
job-so-far = 已 { $time }
job-stages = 阶段
job-attempts = 未成功的尝试
job-attempts-order = 最新的在前
job-details = 详情
job-payload = 参数
job-payload-label = JSON 格式的参数
job-result = 结果
job-result-label = JSON 格式的结果
job-audit = 审计记录

why-waiting = 为什么没有运行？
why-failed = 为什么最终停止？
why-checked = 检查于
why-starting = 即将开始。
why-paused = 队列 { $queue } 已被 { $by } 暂停，因此等待。
why-due-later = { $time }后到时。
why-due-later-after = { $time }后重试，因为第 { $n } 次尝试的结果是：{ $error }
why-no-worker = 没有在线 worker 支持类型 { $type }，因此等待；一旦有 worker 上线即开始。
why-next = 排在下一位，有空位即开始。
why-ahead = 等待空位，前面还有 { $n } 个任务。
why-unrecoverable = { $n ->
    [0] 以不可恢复的错误结束：{ $code }。相同参数会再次失败。
   *[other] 以不可恢复的错误结束：{ $code }。相同参数会再次失败，因此剩余的 { $n } 次尝试未使用。
  }
why-stalled-out = worker 失去响应 { $n } 次，超过该类型的容许次数。
why-gave-up = 尝试 { $n } 次后放弃。最后一次的结果是：{ $code }。
check-due = 时间
check-due-now = 已可开始
check-due-later = 不早于
check-in = { $time }后
check-queue = 队列
check-queue-open = { $queue } 正在接收任务
check-queue-paused = { $queue } 已被 { $by } 暂停
check-place = 排队
check-place-next = 即将开始
check-place-ahead = 前面还有 { $n } 个
check-worker = Worker
check-worker-none = 没有在线 worker 支持此类型
check-worker-some = { $n } 个在线 worker 支持此类型
check-slots = { $n } 个空位上限

stage-standing-done = 已完成
stage-standing-here = 进行中
stage-standing-stopped = 停在这里
stage-standing-to-come = 未到

attempt-n = 第 { $n } 次尝试
attempt-error = 错误
attempt-worker = Worker
attempt-stage = 阶段
attempt-ran = 运行了
attempt-next = 下次开始
attempt-not-counted = 不计入尝试次数

detail-id = 编号
detail-queue = 队列
detail-queue-priority = { $queue }，优先级 { $priority }
detail-attempts = 已用尝试
detail-n-of = { $n } / { $of }
detail-starts = 共启动 { $n } 次
detail-stalls = 停滞
detail-worker = 最近的 worker
detail-enqueued = 入队
detail-by = 来自
detail-ended = 结束
detail-owner = 所有者
detail-key = 幂等键
detail-duplicates = 重复请求
detail-n-duplicates = { $n ->
    [0] 没有
   *[other] { $n } 个指向此任务
  }
detail-last = 最近
detail-export = 导出页面
detail-export-link = 以接收者的视角打开

audit-refused = 被拒绝
audit-someone = 某人
